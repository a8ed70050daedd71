// Command devnode is `make run`: a whole node to look at and to play with.
//
// It starts a containerd of its own, a registry on loopback with the demo
// image, and fullnode on a copy of examples/fullnode/manifests, all below
// .dev/node. It prints which pods run and where to look. Ctrl-C takes
// everything down, and devnode says what is left, which is nothing.
//
// With --runtime=fake only fullnode is started, on its in-memory runtime.
package main
