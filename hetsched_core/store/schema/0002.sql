-- What the live daemon goes on from when it comes back.

-- Runs whose spool files are still read.
CREATE TABLE followed_run (
    nonce   VARCHAR NOT NULL,
    job     VARCHAR NOT NULL,
    run     INTEGER NOT NULL,
    uid     BIGINT  NOT NULL,
    owner   VARCHAR NOT NULL,
    profile VARCHAR NOT NULL,   -- empty: what it measures counts for no profile
    pieces  VARCHAR NOT NULL,   -- JSON: [[node, GPU type, host, GPUs held], ...]
    begun_s DOUBLE  NOT NULL
);

-- How far each job has come, as its spool files say.
CREATE TABLE progress (
    nonce              VARCHAR NOT NULL,
    job                VARCHAR NOT NULL,
    run                INTEGER NOT NULL,
    at_s               DOUBLE  NOT NULL,   -- when it was taken in, seconds UTC
    samples            DOUBLE  NOT NULL,
    samples_per_s      DOUBLE  NOT NULL,   -- of this run, 0 where it has not said
    checkpoint_samples DOUBLE  NOT NULL,
    checkpoint_s       DOUBLE  NOT NULL    -- when that was taken in; 0 for never
);
