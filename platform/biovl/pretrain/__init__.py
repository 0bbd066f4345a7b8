"""The command ``pretrain``: contrastive training of two towers, in plain PyTorch."""
