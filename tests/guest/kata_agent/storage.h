/* SPDX-License-Identifier: Apache-2.0 */
/* storage.h - a disk that is mounted before CreateContainer is answered, and unmounted by
 * RemoveContainer or when the creation fails (tried with Kata 4.1.0). */
#pragma once

#include "container.h"

/* Field 5 of a CreateContainerRequest. */
void storage_parse(struct bytes message, struct container_storage *storage);

/* Waits for the disk at the storage's address, mounts it and applies the group to its root, unless
 * the mount point has users already. True, or false with the text of the answer, of TEXT_BYTES;
 * nothing is mounted then. One thread at a time. */
bool storage_mount(const struct container_storage *storage, char *ret_text);
void storage_unmount(const char *path); /* spelled as for storage_mount(); "": there is none */
