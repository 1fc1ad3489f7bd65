"""Asks PyTorch programs that run to record themselves, through the door that libkineto
has for a daemon. Never imports torch, and knows nothing of traces."""
