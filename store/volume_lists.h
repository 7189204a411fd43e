/* SPDX-License-Identifier: Apache-2.0 */
/* volume_lists.h - which volumes an event concerns. */
#pragma once

#include "model/volume.h"
#include "store/bounds.h"

/* Must not write, nor start the walk that it is called from. Returning non-zero ends the walk and
 * is what it returns. */
typedef int store_volume_callback(void *userdata, int64_t volume_id);

/* Volumes whose path leads to a device with this number or to one that stands on it, or to this
 * regular file, or whose directory names this sandbox (or is bound to it, or is claimed by it), or
 * all that are not removed, or whose next attempt is due. */
int store_each_volume_of_device(struct store *store, uint32_t major, uint32_t minor,
                                store_volume_callback *callback, void *userdata);
int store_each_volume_of_file(struct store *store, uint64_t file_device, uint64_t inode,
                              store_volume_callback *callback, void *userdata);
int store_each_volume_of_device_id(struct store *store, int64_t device_id,
                                   store_volume_callback *callback, void *userdata);
/* Other volumes on the device of the one whose directory has this name. */
int store_each_volume_beside(struct store *store, const char *key, store_volume_callback *callback,
                             void *userdata);
int store_each_volume_of_sandbox(struct store *store, const char *sandbox_id,
                                 store_volume_callback *callback, void *userdata);
/* Volumes that the sandbox's containers mount something within, and those that were last seen
 * bypassed by any. */
int store_each_bypassed_volume(struct store *store, const char *sandbox_id,
                               store_volume_callback *callback, void *userdata);
int store_each_volume(struct store *store, store_volume_callback *callback, void *userdata);
/* For the sweep: volumes with a live sandbox, or that conflict about one, and present ones whose
 * path leads to no device. */
int store_each_bound_volume(struct store *store, store_volume_callback *callback, void *userdata);
int store_each_volume_without_device(struct store *store, store_volume_callback *callback,
                                     void *userdata);
int store_each_volume_due(struct store *store, uint64_t now_ns, store_volume_callback *callback,
                          void *userdata);

/* File systems, as metadata names them, that a guest has told the size of. The callback must not
 * write; returning non-zero ends the walk. */
int store_each_mounted_file_system(struct store *store,
                                   int (*callback)(void *userdata, const char *fs_type),
                                   void *userdata);

/* The earliest next attempt after that time; UINT64_MAX if there is none. */
int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns);
