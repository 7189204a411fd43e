/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - constructors with parameters that only tests set. */
#pragma once

#include "watch/watch.h"

/* receive_bytes: the value for SO_RCVBUF (forced if permitted). */
int watch_block_new_sized(struct loop *loop, const struct watch_block_handler *handler,
                          void *userdata, int receive_bytes, struct watch_block **ret_watch);

/* mount_table: the mountinfo file of a process. */
int watch_mounts_new_at(struct loop *loop, const char *mount_table, void (*changed)(void *userdata),
                        void *userdata, struct watch_mounts **ret_watch);
