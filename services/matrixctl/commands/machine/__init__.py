"""Commands about the machine: what there is of it, how it is wired, and what is taken out of use."""
