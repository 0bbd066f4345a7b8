"""The job ``pretrain``: contrastive training of two towers, in plain PyTorch."""
