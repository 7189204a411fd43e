/* SPDX-License-Identifier: Apache-2.0 */
/* http_volume.h - one volume: its row, and all that explains it. Private to api/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"

struct reconciler;
struct store_reader;

enum http_volume_failure { HTTP_VOLUME_UNKNOWN = -ENOENT /* there is no such volume */ };

/* Each appends a JSON object about the volume with this id. 0, HTTP_VOLUME_UNKNOWN, another -errno
 * with a text. */
int http_volume_write(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                      struct error *error);

/* {"volume_id","target_path","state","reason","resizable","resizable_reason", the members of
 * advice_append(), "volume":{…},"mapping","sandbox","resize","cleanup":{…}|null,"layers":[…],
 * "journal":[…],"judged":[…]|null}: the explanation, and the newest rows of the views. judge:
 * whether its metadata is judged now, which costs a look at the node; else "judged" is missing. */
int http_volume_explain(struct reconciler *reconciler, int64_t volume_id, bool judge,
                        struct buffer *json, struct error *error);
