"""One benchmark a kernel, under the kernel's name."""
