-- What each job asked for when it was first seen, for the next daemon.
CREATE TABLE submitted_job (
    job      VARCHAR PRIMARY KEY,   -- Slurm's id; an array's for all of its elements
    document VARCHAR NOT NULL       -- JSON
);
