// Package metrics turns the rooms' hooks into Prometheus metrics under the
// kubelet's names, so that existing dashboards and alerts keep working.
//
//   - In: what happens in the rooms, through the hooks that [Metrics] hands out,
//     one method per room.
//   - Out: metrics in a registry of its own, and [Metrics.Handler] to serve them.
//     Two nodes in one process have two registries.
//   - Owns: counters. No goroutine, nothing is asked of anybody at scrape time
//     but the functions given to [Metrics.Workers].
//   - Rooms: every room below has hooks; server serves the handler.
//
// No label comes from a request or from a name that users choose freely, so the
// number of series does not grow with what runs.
package metrics
