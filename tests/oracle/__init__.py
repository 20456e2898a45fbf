"""An independent fp64 reading of the step's semantics, used as the judge of every backend.

It shares no code with the product and needs only numpy (and ml_dtypes for bfloat16): one request at a time, plain
loops, the rule before the speed. Entry points: :func:`tests.oracle.step.run_step` (a step-file object in, a result
object and margins out), :func:`tests.oracle.compare.compare_step`, :func:`tests.oracle.generate.generate_step`.
"""
