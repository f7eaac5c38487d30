"""What may change or refuse a write: webhooks, priority, escalation.

Never writes an object.
"""
