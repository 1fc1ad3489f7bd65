"""What follows from a trace: why the GPU idles, what differs, who is late, what limits
a server."""
