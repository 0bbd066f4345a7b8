"""Contrastive training: plain PyTorch, with or without ``torch.distributed``; knows nothing of Ray."""
