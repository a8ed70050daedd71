// Package report is what a program sees of itself and its surroundings: the
// inside view that the observations of test/integration compare with a manifest.
//
//   - In: paths whose files are to be described, beside what /proc/self says.
//   - Out: a [Report], one line of JSON in the log of `kk look`.
//   - Owns: nothing.
//   - Rooms: kk makes a report inside a container, integration reads it outside.
package report
