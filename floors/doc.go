// Package floors starts the rooms of a house bottom up and stops them top down.
//
//   - In: floors of [Runner] values, the lowest first. A Runner is anything whose
//     Run blocks until its ctx ends.
//   - Out: one error, joined from all Runners that did not end well.
//   - Owns: one goroutine per Runner, inside [Run], which returns after the last.
//   - Rooms: beside the house. Only a main that wires rooms together needs it.
//
// A floor may rely on every floor below it while it runs and while it stops: the
// workers can finish, then what they reported can be written, then the doors close.
package floors
