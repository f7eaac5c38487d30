"""What a process shows of itself: metrics as they are declared, and the trace that what it does belongs to."""
