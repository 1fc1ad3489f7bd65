"""Requests recordings from running PyTorch programs, through libkineto's daemon
interface. Never imports torch, and knows nothing of traces."""
