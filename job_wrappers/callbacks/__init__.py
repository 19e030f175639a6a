"""A training whose loop is another's, measured and stopped as a `TrainingSession` is.

    Trainer(..., callbacks=[trainer_callback()])             # job_wrappers.callbacks.hugging_face
    Trainer(..., callbacks=[lightning_callback("folder")])   # job_wrappers.callbacks.lightning

The checkpoints are the framework's own: see docs/live/training.md. What a callback needs is
imported when it is made, not before.
"""
