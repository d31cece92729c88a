"""What serving Context-1 on this machine needs to know: GPUs, flags and memory."""
