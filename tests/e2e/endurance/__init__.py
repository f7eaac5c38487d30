"""A stack of processes under churn for hours: what it keeps in memory and on the disk stays bounded."""
