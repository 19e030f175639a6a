-- What became of jobs, and when they were told that they would start.

-- A job that has come, and what is known of it when it has left.
CREATE TABLE job (
    nonce         VARCHAR NOT NULL,   -- names the job for good
    job           VARCHAR NOT NULL,
    owner         VARCHAR NOT NULL,
    submit_s      DOUBLE  NOT NULL,
    ended_s       DOUBLE,             -- NULL while it is there
    first_start_s DOUBLE,             -- NULL if it never held GPUs
    ended_as      VARCHAR NOT NULL,   -- Slurm's word; empty while it is there, or not known
    share         DOUBLE,             -- its work by its claim; NULL where not known
    samples       DOUBLE  NOT NULL,   -- work done, told or by its GPU time
    wait_s        DOUBLE  NOT NULL,
    restarts      INTEGER NOT NULL,
    expected_s    DOUBLE,             -- run time without waiting (Hops formula 9)
    document      VARCHAR NOT NULL    -- JSON: the job as it was submitted
);

-- What happened to jobs: only what changed.
CREATE TABLE job_event (
    nonce    VARCHAR NOT NULL,
    job      VARCHAR NOT NULL,
    owner    VARCHAR NOT NULL,
    at_s     DOUBLE  NOT NULL,
    decision BIGINT  NOT NULL,        -- number of the latest decision then
    event    VARCHAR NOT NULL,        -- came, waits, planned, runs, stops, left
    detail   VARCHAR NOT NULL
);

-- The ranges that were given for a job's start, and its true start.
CREATE TABLE start_range (
    nonce        VARCHAR NOT NULL,
    job          VARCHAR NOT NULL,
    owner        VARCHAR NOT NULL,
    at_s         DOUBLE  NOT NULL,
    policy       VARCHAR NOT NULL,
    drawn_low_s  DOUBLE  NOT NULL,
    drawn_high_s DOUBLE  NOT NULL,
    low_s        DOUBLE  NOT NULL,
    high_s       DOUBLE  NOT NULL,
    start_s      DOUBLE               -- NULL while it is not known
);
