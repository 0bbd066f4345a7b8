"""Contrastive training in plain PyTorch, on one worker or many; knows nothing of Ray."""
