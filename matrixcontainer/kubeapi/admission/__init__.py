"""What may change or refuse a write: webhooks, limits, quotas, priority, escalation.

Never writes an object except what it charges to a quota.
"""
