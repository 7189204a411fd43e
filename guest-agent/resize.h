/* SPDX-License-Identifier: Apache-2.0 */
/* resize.h - one ResizeVolume: waits for the device, grows the file system, reports the result.
 *
 * The hypervisor's success does not mean that the guest has seen the new size yet, so a request may
 * come early. It waits, without keeping anybody else waiting, until a device of the volume has the
 * size asked for. Then the file system is grown to what its devices really have; a request for less
 * than that, or for the present size, is done at once. Nothing is ever shrunk.
 */
#pragma once

#include <stdint.h>

#include "agent-client/ttrpc_codec.h"
#include "lib/loop.h"

struct resize;

typedef void resize_done(struct resize *resize, const struct ttrpc_status *status, void *userdata);

/* bytes: the size to wait for; 0 is whatever the device has. timeout_ns: 0 is 10 s. `done` comes
 * once, from the loop. 0 or -ENOMEM. */
int resize_new(struct loop *loop, const char *volume_path, uint64_t bytes, uint64_t timeout_ns,
               resize_done *done, void *userdata, struct resize **ret_resize);
struct resize *resize_free(struct resize *resize); /* returns NULL; a resize that runs goes on */
