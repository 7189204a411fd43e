/* SPDX-License-Identifier: Apache-2.0 */
/* status_page.h - the state of the node at a glance, for a browser without scripts. Private to
 * api/. */
#pragma once

#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

/* The most rows of volumes and of resizes; the page says if there are more. */
enum { STATUS_PAGE_VOLUMES = 200, STATUS_PAGE_RESIZES = 30 };

/* What the browser may load: only the style sheet. */
#define STATUS_PAGE_POLICY                                                                         \
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "                  \
    "frame-ancestors 'none'"

/* The content of /status.css, which the page's link names. */
extern const char status_style[];

/* 0 or -errno with a text. */
int status_page_write(struct reconciler *reconciler, struct buffer *ret_page, struct error *error);
