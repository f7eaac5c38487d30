"""One running deployment in emulated time: its layout and changes of it, admission, load and statistics."""
