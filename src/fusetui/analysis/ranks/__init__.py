"""Many traces of one job: each rank is summarized where its trace lies, and every
answer about who waits for whom is computed from the summaries alone.

    answer.explained(executors.summarize(paths)).answer
    whatif.job_whatif(answer.explained(...).facts, changes)  reads the traces again
"""
