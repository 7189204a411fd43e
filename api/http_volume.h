/* SPDX-License-Identifier: Apache-2.0 */
/* http_volume.h - one volume: its row, and all that explains it. Private to api/. */
#pragma once

#include "lib/buffer.h"
#include "lib/result.h"

struct store_reader;

enum http_volume_failure { HTTP_VOLUME_UNKNOWN = -ENOENT /* there is no such volume */ };

/* Each appends a JSON object about the volume with this id. 0, HTTP_VOLUME_UNKNOWN, another -errno
 * with a text. */
int http_volume_write(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                      struct error *error);

/* {"volume_id","target_path","state","reason","state_meaning","reason_meaning","missing",
 *   "remedies":[…],"volume":{…},"mapping","sandbox","resize","cleanup":{…}|null,"layers":[…],
 *   "journal":[…]}: the newest rows of the views, and their texts. */
int http_volume_explain(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                        struct error *error);
