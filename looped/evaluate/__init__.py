"""Downstream evaluation of a trained model: the paper's synthetic tasks, and any task of lm-eval.

primitives      the five reasoning primitives, as text (no torch)
continuation    loss and greedy accuracy of continuations
harness         adapter of the model for lm-eval (looped[eval])
checkpoint      from the folder of a run to a table of results
"""
