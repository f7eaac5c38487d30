"""A container engine and images for the compose tests, made from Debian's packages where no registry is in reach."""
