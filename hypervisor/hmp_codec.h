/* SPDX-License-Identifier: Apache-2.0 */
/* hmp_codec.h - QEMU's human monitor: its prompt, its echo and its tables. No I/O. Private to
 * hypervisor/.
 *
 * The conversation with QEMU 7.2 over a socket (recorded):
 *
 *     S  QEMU 7.2.22 monitor - type 'help' for more information CR LF (qemu)
 *     C  info version LF
 *     S  i ESC[K ESC[D in ESC[K ESC[D ESC[D inf ESC[K …        the line is redrawn for each key
 *     S  CR LF 7.2.22Debian … CR LF (qemu)                     the reply, lines ended by CR LF
 *
 * So a reply is the text between the first line end after a command and the next prompt.
 */
#pragma once

#include <stdint.h>

#include "hypervisor/qemu_report.h"
#include "lib/buffer.h"
#include "lib/result.h"

enum { HMP_REPLY_BYTES = 1024 * 1024 };

enum { HMP_DECODED = 0, HMP_INCOMPLETE = 1 };

/* Takes one reply off the input, once the prompt after it has arrived, and appends its text without
 * echo and prompt, with lines ended by LF. The greeting is decoded as a reply without text.
 * HMP_DECODED, HMP_INCOMPLETE, -EBADMSG (not text), -EMSGSIZE, -ENOMEM. */
int hmp_decode(struct buffer *input, struct buffer *ret_text, struct error *error);

/* Reads "7.2.22" from the greeting, once it is complete in the input; "" if it contains no
 * version. */
void hmp_read_version(const struct buffer *input, char *ret_version, size_t size);

/* Parses the text of `info block -v` (root nodes of the frontends; repeated = true: two frontends
 * may share one) or of `info block -n -v` (all nodes). 0, -EBADMSG, -EMSGSIZE, -ENOMEM. */
int hmp_read_blocks(const char *text, bool repeated, struct qemu_nodes *nodes, struct error *error);

/* Appends `qemu-io NODE "truncate BYTES"`. The node's name must be plain (qemu_name_is_plain),
 * because HMP has no reliable quoting: -EINVAL. */
int hmp_encode_truncate(struct buffer *output, const char *node, uint64_t bytes);
