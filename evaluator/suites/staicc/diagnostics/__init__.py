"""Diagnostics of StaICC: bias and robustness, which accuracy alone does not show. Part, metric, unit and sign:

contextual  contextual_bias                        nats; `paper`: 0 or less, more is more bias; `released`: reversed
domain      domain_bias                            the same
normal      empirical_bias                         nats, 0 or more, more is more bias
gler        gler                                   accuracy lost per unit of noise: above 0 where labels are read
gler        gler_METRIC                            the same of another metric: below 0 where the metric rises with noise
template    template_consistency                   share in [0, 1]
template    accuracy_mean_over_templates           share; its interval is over queries and templates
template    accuracy_sd_over_templates             standard deviation of the templates' accuracies
sampling    sampling_consistency                   share in [0, 1]
sampling    accuracy_mean_over_demonstration_sets  share

Intervals are over queries unless stated otherwise: they cover other queries with the same model, templates and noise
rates. registry.py says which function measures what.

Source: Cho & Inoue 2025 (StaICC), section 3.3.
"""
