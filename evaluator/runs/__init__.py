"""What is done to finished runs: list, show, verify, clean, export, import, receipts and gates."""
