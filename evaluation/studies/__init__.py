"""Studies: the questions that papers ask about their placers, answered for these.

A study is a folder: its options, problems and placers (a `Study`; `python -m evaluation.studies.NAME` runs it), what it
concludes from records, and the template of its document. Plans are kept in journals of comparisons
(`evaluation.records.journal`), measurements and trainings in pieces. All resume where they were stopped. They are not
part of the wheel.
"""
