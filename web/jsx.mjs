// What markup becomes, and the shortest name for nothing.
export { createElement, Fragment } from 'react'
export let nothing
