"""Many runs of pretrain that differ in some settings: which, what came of each, and the best."""
