"""Own kernels, written out so that what runs is what is read: one module per family."""
