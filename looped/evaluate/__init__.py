"""Downstream evaluation of a trained model: the paper's synthetic tasks, and any task of lm-eval.

primitives      the five reasoning primitives, as text (no torch)
continuation    loss and greedy accuracy of continuations
harness         the model as lm-eval sees it (looped[eval])
checkpoint      from a run's folder to a table of results
"""
