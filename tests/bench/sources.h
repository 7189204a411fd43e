/* SPDX-License-Identifier: Apache-2.0 */
/* sources.h - descriptors that are waited for together. */
#pragma once

#include <stdint.h>

struct source {
    int fd;
    void (*ready)(struct source *source);
};

void sources_add(struct source *source);

/* Closes the descriptor; the source may be freed when its callback has returned. */
void sources_remove(struct source *source);

/* Serves what is ready until the time, of now_ns(), has come. UINT64_MAX: serves once. */
void sources_serve(uint64_t until_ns);
