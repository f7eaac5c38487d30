"""Who a token is, what a user may do, reviews, impersonation, default roles.

Changes no role; a controller keeps the default ones.
"""
