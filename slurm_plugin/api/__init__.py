"""What the daemon tells those who ask, over a unix socket.

After each cycle the daemon publishes one frozen value; whoever asks is answered from that, in a
thread of its own, so that no question can hold up scheduling.
"""
