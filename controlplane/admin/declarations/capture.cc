// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"

namespace sluice::admin {
namespace {

Declaration capture_start() {
  return {.name = "capture_start",
          .summary =
              "Writes the packets of a softroce device to a pipe, as a pcapng file. Its writing end is "
              "passed with "
              "the request (SCM_RIGHTS), with the request's first byte.",
          .parameters = {whole32("seconds", "end after so long; 0: no limit").or_else(0),
                         whole32("snap", "bytes kept of each packet").or_else(9216),
                         whole("packets", "end after so many packets; 0: no limit").or_else(0),
                         whole("bytes", "end before more is written; 0: no limit").or_else(0),
                         whole32("queue_pair", "only packets of this queue pair; 0: of all").or_else(0),
                         text("peer", "only packets from and to this address; empty: of all").or_else("")},
          .result = object("", "", {whole("id", "names the capture")}),
          .errors = {"No descriptor was passed.", "peer is no IP address.", "A capture runs already.",
                     "No data plane takes the request."}};
}

Declaration capture_stop() {
  return {.name = "capture_stop",
          .summary = "Ends a capture; what was captured is still written.",
          .parameters = {whole("id", "the capture; 0: any").or_else(0)},
          .result = object("", "", {whole("id", "the same")}),
          .errors = {"No data plane takes the request."}};
}

Declaration capture_status() {
  return {.name = "capture_status",
          .needed = Access::Read,
          .summary = "The last capture.",
          .result =
              object("", "",
                     {text("state", "none: there was none since the data plane's start")
                          .one_of({"none", "running", "done", "failed"}),
                      whole("id", "names the capture").if_any(), whole("packets", "packets written").if_any(),
                      whole("bytes", "bytes written").if_any(),
                      whole("dropped", "packets lost because the pipe was full").if_any(),
                      text("end", "done: why it has ended").if_any(),
                      text("problem", "failed: why, a sentence").if_any()})};
}

}  // namespace

Chapter declare_captures() {
  return {.title = "Packet capture", .methods = {capture_start(), capture_stop(), capture_status()}};
}

}  // namespace sluice::admin
