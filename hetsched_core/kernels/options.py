"""The options of many jobs (Hops, SoCC '24, section 3.6).

The naive twin is in `tests/hetsched_core/policies/naive_hops.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels import FLOATS, FLOATS_OUT, INTS, kernel, table, void
from hetsched_core.kernels import int64 as whole

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INTS_OUT = whole[::1]


@kernel(
    void(
        INTS,
        INTS,
        INTS,
        INTS,
        FLOATS,
        INTS,
        table(),
        INTS,
        table(whole),
        INTS,
        INTS,
        FLOATS,
        INTS_OUT,
        INTS_OUT,
        FLOATS_OUT,
        INTS_OUT,
        table(whole, out=True),
        INTS_OUT,
    )
)
def of_jobs(
    kind: Ints,
    segment_from: Ints,
    begin: Ints,
    end: Ints,
    speed: Floats,
    factor_row: Ints,
    factor: Floats,
    piece_from: Ints,
    pieces: Ints,
    code: Ints,
    own: Ints,
    own_speed: Floats,
    out_job: Ints,
    out_code: Ints,
    out_speed: Floats,
    out_piece_from: Ints,
    out_pieces: Ints,
    size: Ints,
) -> None:
    """Put out the options of each job: the segments of configurations that its kind can take.

    Args:
        kind: (J,) of each job.
        segment_from: (K+1,) where the segments of each kind begin.
        begin: (S,) first configuration of each segment, all of one GPU count on one type.
        end: (S,) the one after its last.
        speed: (S,) samples/s there on nodes of the type's own speed; one of 0 is no configuration.
        factor_row: (K,) row of `factor` for each kind.
        factor: (F, Q) of each configuration: speed of its slowest node relative to the type.
        piece_from: (Q+1,) where the pieces of each configuration begin.
        pieces: (P, 2) class and GPUs of each piece.
        code: (Q,) equal for configurations of equal pieces.
        own: (J,) the configuration that the job has, among the Q, -1 for none. It is put out last
            if it is not in the job's segments.
        own_speed: (J,) samples/s there.
        out_job: out; the job of each option.
        out_code: out; its code.
        out_speed: out; samples/s there.
        out_piece_from: out; where its pieces begin.
        out_pieces: out; their class and GPUs.
        size: (2,) out; options and their pieces.
    """
    options = used = 0
    out_piece_from[0] = 0
    for j in range(len(kind)):
        k, missing = kind[j], own[j] >= 0
        row = factor_row[k]
        for s in range(segment_from[k], segment_from[k + 1]):
            if speed[s] <= 0.0:
                continue
            for q in range(begin[s], end[s]):
                if missing and code[q] == code[own[j]]:
                    missing = False
                out_job[options], out_code[options] = j, code[q]
                out_speed[options] = speed[s] * factor[row, q]
                for i in range(piece_from[q], piece_from[q + 1]):
                    out_pieces[used, 0], out_pieces[used, 1] = pieces[i, 0], pieces[i, 1]
                    used += 1
                options += 1
                out_piece_from[options] = used
        if missing and own_speed[j] > 0.0:
            q = own[j]
            out_job[options], out_code[options], out_speed[options] = j, code[q], own_speed[j]
            for i in range(piece_from[q], piece_from[q + 1]):
                out_pieces[used, 0], out_pieces[used, 1] = pieces[i, 0], pieces[i, 1]
                used += 1
            options += 1
            out_piece_from[options] = used
    size[0], size[1] = options, used
