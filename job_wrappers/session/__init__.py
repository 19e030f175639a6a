"""`TrainingSession`: measures a training loop, saves it and resumes it, on other GPUs too.

    session = TrainingSession(model, optimizer, loader, checkpoint="checkpoints")
    for epoch in session.epochs(90):
        for images, labels in session:
            ...

See docs/live/training.md. torch is imported when a session is made, not before.
"""

from job_wrappers.session.errors import SessionError
from job_wrappers.session.session import TrainingSession

__all__ = ["SessionError", "TrainingSession"]
