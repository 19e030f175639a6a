-- No table has a primary key: rows are merged and replaced in bulk, for which an index is of no use,
-- and a damaged index would be seen only when it is used. `hetsched db check` counts rows that stand
-- twice. What identifies a row comes first in each table.

-- Names that rows refer to by number. Node 0 stands for "not known which".

CREATE SEQUENCE profile_id MINVALUE 1;
CREATE TABLE profile (
    id        INTEGER NOT NULL DEFAULT nextval('profile_id'),
    owner     VARCHAR NOT NULL,  -- empty: the site
    name      VARCHAR NOT NULL,
    published BOOLEAN NOT NULL   -- whether others than the owner may read it
);

CREATE SEQUENCE gpu_type_id MINVALUE 1;
CREATE TABLE gpu_type (
    id   INTEGER NOT NULL DEFAULT nextval('gpu_type_id'),
    name VARCHAR NOT NULL
);

CREATE SEQUENCE node_id MINVALUE 1;
CREATE TABLE node (
    id   INTEGER NOT NULL DEFAULT nextval('node_id'),
    name VARCHAR NOT NULL
);
INSERT INTO node VALUES (0, '');

-- Measured speeds, samples/s per GPU: the entity layer, and through views the type layer.
-- What was measured over several nodes stands in a row of each of them.

CREATE TABLE speed (
    profile  INTEGER NOT NULL,
    gpu_type INTEGER NOT NULL,
    node     INTEGER NOT NULL,
    nodes    INTEGER NOT NULL,   -- 1: aggregated, more: distributed
    gpus     INTEGER NOT NULL,
    count    BIGINT  NOT NULL,
    mean     DOUBLE  NOT NULL,
    m2       DOUBLE  NOT NULL,   -- sum of squared distances from the mean
    first_s  DOUBLE  NOT NULL,   -- seconds UTC
    last_s   DOUBLE  NOT NULL
);

-- The theoretical layer: basic times of an iteration, seconds.

CREATE TABLE basic_times (
    profile       INTEGER NOT NULL,
    gpu_type      INTEGER NOT NULL,
    batch_size    BIGINT  NOT NULL,   -- per GPU
    parameters    BIGINT  NOT NULL,
    pattern       INTEGER NOT NULL,   -- 1: loading overlaps training, 2: it does not
    count         BIGINT  NOT NULL,   -- profiling runs
    forward_mean  DOUBLE  NOT NULL,
    forward_m2    DOUBLE  NOT NULL,
    backward_mean DOUBLE  NOT NULL,
    backward_m2   DOUBLE  NOT NULL,
    update_mean   DOUBLE  NOT NULL,
    update_m2     DOUBLE  NOT NULL,
    first_s       DOUBLE  NOT NULL,
    last_s        DOUBLE  NOT NULL
);

-- Times of loading (T_d) and of waiting for others (T_w), seconds, in bins of the former.
CREATE TABLE data_time (
    profile   INTEGER NOT NULL,
    gpu_type  INTEGER NOT NULL,
    bin       INTEGER NOT NULL,   -- 0: below a microsecond, else quarter octaves from there
    count     BIGINT  NOT NULL,
    data_mean DOUBLE  NOT NULL,
    data_m2   DOUBLE  NOT NULL,
    wait_mean DOUBLE  NOT NULL,
    wait_m2   DOUBLE  NOT NULL
);

-- The modes fitted to them.
CREATE TABLE data_mode (
    profile   INTEGER NOT NULL,
    gpu_type  INTEGER NOT NULL,
    mode      INTEGER NOT NULL,   -- 0 or 1
    share     DOUBLE  NOT NULL,
    data_s    DOUBLE  NOT NULL,
    data_sd_s DOUBLE  NOT NULL,
    wait_s    DOUBLE  NOT NULL
);

-- GPU types.

CREATE TABLE bandwidth (
    gpu_type INTEGER NOT NULL,
    term     VARCHAR NOT NULL,   -- link, network: parameters/s; network_ring: a share
    count    BIGINT  NOT NULL,
    mean     DOUBLE  NOT NULL,
    m2       DOUBLE  NOT NULL,
    first_s  DOUBLE  NOT NULL,
    last_s   DOUBLE  NOT NULL
);

CREATE TABLE gpu_spec (
    name           VARCHAR NOT NULL,
    single_tflops  DOUBLE NOT NULL,
    half_tflops    DOUBLE NOT NULL,
    memory_gb      DOUBLE NOT NULL,
    memory_gb_s    DOUBLE NOT NULL,
    link_gb_s      DOUBLE NOT NULL,
    network_gb_s   DOUBLE NOT NULL,
    aliases        VARCHAR NOT NULL,   -- JSON list
    source         VARCHAR NOT NULL
);

-- What the scheduler did.

CREATE TABLE run (
    nonce         VARCHAR NOT NULL,   -- names the job for good; Slurm hands ids out again
    job           VARCHAR NOT NULL,
    number        INTEGER NOT NULL,
    copy          INTEGER NOT NULL,
    purpose       VARCHAR NOT NULL,
    profile       INTEGER NOT NULL,
    pieces        VARCHAR NOT NULL,   -- JSON: [[node, GPUs], ...]
    since_s       DOUBLE  NOT NULL,
    freed_s       DOUBLE  NOT NULL,
    productive_s  DOUBLE  NOT NULL,
    samples       DOUBLE  NOT NULL,
    ended_by      VARCHAR NOT NULL
);

-- In the order in which they were made, whatever the clock said.
CREATE SEQUENCE decision_id MINVALUE 1;
CREATE TABLE decision (
    id        BIGINT  NOT NULL DEFAULT nextval('decision_id'),
    at_s      DOUBLE  NOT NULL,
    policy    VARCHAR NOT NULL,
    triggers  VARCHAR[] NOT NULL,
    plan_s    DOUBLE  NOT NULL,
    placed    INTEGER NOT NULL,
    waiting   INTEGER NOT NULL,
    method    VARCHAR NOT NULL,
    objective DOUBLE,
    bound     DOUBLE,
    gap       DOUBLE,
    limits    VARCHAR[] NOT NULL,
    prices    VARCHAR NOT NULL,   -- JSON: node class -> price
    document  VARCHAR NOT NULL
);

-- How far spool files have been taken in, and what was rejected.

CREATE TABLE spool_file (
    uid      BIGINT  NOT NULL,
    nonce    VARCHAR NOT NULL,
    job      VARCHAR NOT NULL,
    run      INTEGER NOT NULL,
    rank     INTEGER NOT NULL,
    position BIGINT  NOT NULL    -- bytes
);

CREATE TABLE rejected (
    uid    BIGINT  NOT NULL,
    reason VARCHAR NOT NULL,
    lines  BIGINT  NOT NULL
);

-- The layers, by name.

CREATE VIEW speed_by_node AS
SELECT p.owner, p.name AS profile, g.name AS gpu_type, n.name AS node,
       s.nodes, s.gpus, s.count, s.mean, s.m2, s.first_s, s.last_s
FROM speed s
JOIN profile p ON p.id = s.profile
JOIN gpu_type g ON g.id = s.gpu_type
JOIN node n ON n.id = s.node;

CREATE VIEW entity_aggregated AS
SELECT * EXCLUDE (nodes) FROM speed_by_node WHERE node <> '' AND nodes = 1;

CREATE VIEW entity_distributed AS
SELECT * FROM speed_by_node WHERE node <> '' AND nodes > 1;

-- A measurement over k nodes stands in k rows, so each counts as 1/k: count, mean and m2 are then
-- those of the measurements themselves.
CREATE VIEW speed_by_type AS
WITH part AS (
    SELECT *, CASE node WHEN '' THEN 1 ELSE nodes END AS share FROM speed_by_node
), total AS (
    SELECT owner, profile, gpu_type, nodes, gpus,
           sum(count / share) AS count, sum(count / share * mean) / sum(count / share) AS mean
    FROM part GROUP BY owner, profile, gpu_type, nodes, gpus
)
SELECT owner, profile, gpu_type, nodes, gpus,
       CAST(any_value(total.count) AS BIGINT) AS count,
       any_value(total.mean) AS mean,
       sum((part.m2 + part.count * (part.mean - total.mean) ** 2) / share) AS m2,
       min(first_s) AS first_s, max(last_s) AS last_s
FROM part JOIN total USING (owner, profile, gpu_type, nodes, gpus)
GROUP BY owner, profile, gpu_type, nodes, gpus;

CREATE VIEW type_aggregated AS SELECT * EXCLUDE (nodes) FROM speed_by_type WHERE nodes = 1;

CREATE VIEW type_distributed AS SELECT * FROM speed_by_type WHERE nodes > 1;

CREATE VIEW theory AS
SELECT p.owner, p.name AS profile, g.name AS gpu_type, t.* EXCLUDE (profile, gpu_type),
       d.share AS mode_share, d.data_s AS mode_data_s, d.data_sd_s AS mode_data_sd_s,
       d.wait_s AS mode_wait_s, e.share AS mode2_share, e.data_s AS mode2_data_s,
       e.data_sd_s AS mode2_data_sd_s, e.wait_s AS mode2_wait_s
FROM basic_times t
JOIN profile p ON p.id = t.profile
JOIN gpu_type g ON g.id = t.gpu_type
LEFT JOIN data_mode d ON d.profile = t.profile AND d.gpu_type = t.gpu_type AND d.mode = 0
LEFT JOIN data_mode e ON e.profile = t.profile AND e.gpu_type = t.gpu_type AND e.mode = 1;
