"""Studies: the questions that papers ask about their placers, answered for these.

A study is a folder: its command (`python -m evaluation.studies.NAME`), what it does, and the template of its document.
All of them resume where they were stopped. They are not part of the wheel.
"""
