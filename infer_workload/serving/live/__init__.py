"""A deployment at work: what it lays out on, goes over to, takes in and has done, in emulated time."""
