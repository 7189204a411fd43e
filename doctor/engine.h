/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - which configurations of Kata the container engine hands to its runtimes; text in, no
 * I/O. Private to doctor/.
 *
 * containerd: [plugins.….containerd.runtimes.NAME] runtime_type, runtime_path; in its options
 * ConfigPath. CRI-O: [crio.runtime.runtimes.NAME] runtime_type, runtime_path, runtime_config_path.
 * As kata-deploy of Kata 4.1.0 writes them (tools/packaging/kata-deploy/binary/src/runtime/).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/result.h"

enum { ENGINE_RUNTIMES = 64, ENGINE_NAME_BYTES = 64, ENGINE_PATH_BYTES = 256 };

struct engine_runtime {
    char name[ENGINE_NAME_BYTES];        /* a RuntimeClass's handler */
    bool is_kata;                        /* its type, path or configuration has "kata" in it */
    bool is_rust;                        /* its path has "runtime-rs" in it */
    char config_path[ENGINE_PATH_BYTES]; /* "": the runtime looks where it was built to */
};

struct engine_runtimes {
    unsigned count;
    struct engine_runtime runtime[ENGINE_RUNTIMES];
};

/* Adds what one more file says to *runtimes, which starts as zeroes. 0, or -EBADMSG with
 * "FILE: line N: what". */
int engine_runtimes_read(struct engine_runtimes *runtimes, const char *file, const char *text,
                         size_t length, struct error *error);
