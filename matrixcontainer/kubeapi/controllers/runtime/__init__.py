"""What every controller stands on: work queue, informers, event recorder.

Knows no kind's behaviour.
"""
