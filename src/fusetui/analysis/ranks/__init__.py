"""Compares many traces of one job: summarizes each rank where its trace is stored, and
computes every answer from the summaries alone.

    answer.explained(executors.summarize(paths)).answer
    whatif.estimate_changes(answer.explained(...).facts, changes)  reads the traces again
"""
