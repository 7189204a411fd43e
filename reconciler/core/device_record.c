/* SPDX-License-Identifier: Apache-2.0 */
/* device_record.c - see device_record.h. */
#include "reconciler/core/device_record.h"

#include "lib/clock.h"
#include "observe/observe.h"
#include "store/store.h"

struct store_device device_to_record(const struct observed_device *observed)
{
    return (struct store_device){
        .kind = observed->kind,
        .name = observed->name,
        .major = observed->major,
        .minor = observed->minor,
        .diskseq = observed->diskseq,
        .file_device = observed->file_device,
        .inode = observed->inode,
        .size_bytes = observed->size_bytes,
        .now_ns = clock_boottime(),
    };
}

int record_device(struct store *store, const struct observed_device *observed,
                  int64_t *ret_device_id, bool *ret_changed)
{
    const struct store_device device = device_to_record(observed);

    return store_put_device(store, &device, ret_device_id, ret_changed);
}
